# Sourced by run_tests and matrix/run, which set `here` (this folder), `bin` (the folder of prepack)
# and `version` (of vLLM): sets `python`, in which that vLLM is installed, `scratch`, a folder that
# goes at the end, with the plug-in in scratch/site, and PREPACK, the program.

if [[ ! -x $bin/prepack ]]; then
  echo "error: $bin/prepack: there is no such program. Build it, or name its folder" >&2
  exit 2
fi
"$(dirname "$(dirname "$here")")/tools/setup_vllm" --version "$version"
python=${PREPACK_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/prepack}/vllm-bench
[[ $version == 0.32 ]] || python+=-$version
python+=/bin/python

# Installed where only this run sees it, so that vLLM finds it as it finds any plugin; built from a
# copy, because setuptools writes into the folder that it builds.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$here/pyproject.toml" "$here/README.md" "$here/prepack_vllm" "$scratch"
"$python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation \
  --target "$scratch/site" "$scratch"
export PREPACK=$bin/prepack
