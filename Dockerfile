# The image of mscheduler: one static binary, run by a user without privileges.
#
#   docker build -t mscheduler .                      from source
#   docker build -t mscheduler --target prebuilt .    from bin/mscheduler (make build), without other images
FROM scratch AS base
# The audit names who runs a command by USER: there is no /etc/passwd.
ENV USER=mscheduler HOME=/
USER 65532:65532
ENTRYPOINT ["/mscheduler"]

FROM base AS prebuilt
COPY bin/mscheduler /mscheduler

# After prebuilt: a builder without BuildKit builds all stages before its target.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
RUN make build VERSION="$VERSION"

FROM base
COPY --from=build /src/bin/mscheduler /mscheduler
