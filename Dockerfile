# Builds the suite's one image from source: `docker compose up --build` uses it. Dockerfile.prebuilt packs a binary that
# was built outside; everything below "FROM scratch" is the same in both, and tests/tidy.rs says so if it is not.
#
# No build-time mounts and no heredocs, so that the classic builder does it as well as BuildKit. rust-toolchain.toml stays
# outside (.dockerignore): the base has that toolchain already, and the file would make rustup fetch components.
FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN scripts/static-binary

FROM scratch AS image
# The ledger's directory: a named volume that is mounted here takes over its owner.
COPY --from=build --chown=65532:65532 /src/dist/ledger /var/lib/mercury
COPY --from=build /src/dist/mercury /mercury
COPY config /config
USER 65532:65532
ENTRYPOINT ["/mercury"]
