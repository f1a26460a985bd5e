# prepack in a small image, which runs as a user without rights:
#
#   docker build -t prepack .
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" prepack convert model -o packed -t vllm-cpu
#
# and for machines of other kinds, in one image:
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t REGISTRY/prepack --push .
#
# The program is the static one of a release: it needs no library, and has oneDNN in it. This machine compiles it for
# each platform.

FROM --platform=$BUILDPLATFORM debian:12-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ cmake ninja-build python3-venv ca-certificates dpkg-dev \
      nlohmann-json3-dev libeigen3-dev libxsimd-dev libcli11-dev \
      binutils-aarch64-linux-gnu binutils-x86-64-linux-gnu qemu-user-static
COPY CMakeLists.txt CMakePresets.json LICENSE CHANGELOG.md /src/
COPY cmake /src/cmake
COPY libconvert /src/libconvert
COPY packaging /src/packaging
COPY tools /src/tools
WORKDIR /src
ARG TARGETARCH
RUN packaging/portable/build /build "$([ "$TARGETARCH" = arm64 ] && echo aarch64 || echo x86_64)"

FROM debian:12-slim
COPY --from=build /build/install /usr/local
RUN useradd --uid 10001 --create-home prepack
USER prepack
WORKDIR /work
ENTRYPOINT ["prepack"]
