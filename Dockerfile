# prepack in a small image, which runs as a user without rights:
#
#   docker build -t prepack .
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" prepack convert model -o packed -t vllm-cpu
#
# oneDNN is left out (it would add half a gigabyte): `prepack verify` proves the GEMM with models of the kernels.

FROM debian:12-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ cmake ninja-build pkg-config nlohmann-json3-dev libeigen3-dev \
      libxsimd-dev libcli11-dev libfmt-dev libpcre2-dev libxxhash-dev
COPY CMakeLists.txt CMakePresets.json LICENSE CHANGELOG.md /src/
COPY cmake /src/cmake
COPY libconvert /src/libconvert
COPY packaging /src/packaging
COPY tools /src/tools
WORKDIR /src
RUN cmake -S . -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF \
      -DCMAKE_UNITY_BUILD=ON -DPREPACK_ONEDNN=OFF -DPREPACK_BENCH=OFF \
 && cmake --build /build \
 && cmake --install /build --component tool --strip --prefix /opt/prepack

FROM debian:12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libfmt9 libpcre2-8-0 libxxhash0 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/prepack /usr/local
RUN useradd --uid 10001 --create-home prepack
USER prepack
WORKDIR /work
ENTRYPOINT ["prepack"]
