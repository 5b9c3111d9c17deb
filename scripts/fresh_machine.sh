#!/usr/bin/env bash
# fresh_machine.sh [demo|test]...: runs `make demo` and `make test` (or those named) on machines with nothing but what the
# README asks for: Debian trees of their own, 12 and 13, with a home of their own and no cache. As root, on a Debian with
# debootstrap. SUITES="trixie" takes some of the suites; SUITES=forky is the coming Debian 14 with Python 3.14, not one of
# them all since it changes still: delete its tar for a newer one. FRESH_CACHE=folder keeps downloads between runs: it is the only
# thing of this machine that may come in, as ~/.cache. The trees lie in the cache outside the checkout.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
suites="${SUITES:-bookworm trixie}"
packages="ca-certificates,git,make,python3" # what the README says that there must be
version=1                                   # raise it when what is below changes a tree
trees="${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/fresh"
targets=("$@")
[ $# -gt 0 ] || targets=(demo test)

fail() { echo "$1" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "A fresh machine is made by root: run this with sudo."
if ! command -v debootstrap >/dev/null; then
    apt-get -o DPkg::Lock::Timeout=300 update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends debootstrap >/dev/null
fi

mirror() { # where this machine has its own Debian packages from; nothing: debootstrap's default
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(SUITE)' "Created-By: Packages" 2>/dev/null |
        sed -n '/security/d; s/^Debian \([^ ]*\) .*/\1/p' | head -n 1
}

make_tree() { # suite: once, into a tar
    local suite="$1" tar="$trees/$1-$version.tar" work scripts
    [ ! -e "$tar" ] || return 0
    mkdir -p "$trees"
    work="$(mktemp -d "$trees/making-XXXXXX")"
    scripts=/usr/share/debootstrap
    if [ ! -e "$scripts/scripts/$suite" ]; then # newer than this debootstrap: made as all suites of Debian are now
        cp -r "$scripts" "$work/debootstrap"
        scripts="$work/debootstrap"
        ln -s sid "$scripts/scripts/$suite"
    fi
    echo "Making a Debian tree of $suite ..." >&2
    # shellcheck disable=SC2046 # no mirror: no argument
    DEBOOTSTRAP_DIR="$scripts" debootstrap --variant=minbase --include="$packages" "$suite" "$work/tree" $(mirror) >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; rm -rf "$work"; fail "debootstrap of $suite failed; its last words are above."; }
    rm -rf "$work"/tree/var/lib/apt/lists/* "$work"/tree/var/cache/apt/*.bin "$work"/tree/var/cache/apt/archives/*.deb
    tar --numeric-owner --one-file-system -C "$work/tree" -cf "$work/tar" .
    mv "$work/tar" "$tar"
    rm -rf "$work"
}

prepare() { # root: how this machine reaches the network, and the checkout as it stands, committed or not
    local root="$1"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    # As Debian's installer writes them: the JVM looks its own name up.
    hostname >"$root/etc/hostname"
    printf '127.0.0.1\tlocalhost\n127.0.1.1\t%s\n' "$(hostname)" >"$root/etc/hosts"
    # Its proxy, and whether its mirror may be behind: only suites that change say until when they are valid.
    apt-config dump | sed -n '/^Acquire::https\{0,1\}::Proxy/p; /^Acquire::Check-Valid-Until/p' >"$root/etc/apt/apt.conf.d/90network"
    if compgen -G "/usr/local/share/ca-certificates/*.crt" >/dev/null; then
        cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
        chroot "$root" update-ca-certificates >/dev/null 2>&1
    fi
    mkdir -p "$root/home/tidemill/checkout" "$root/root/.cache"
    git -C "$here" ls-files -z --cached --others --exclude-standard |
        (cd "$here" && xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh) |
        tar -C "$here" --null -T - -cf - | tar -C "$root/home/tidemill/checkout" --no-same-owner -xf -
}

inside() { # root command...: in namespaces of its own, so that all that it starts and mounts ends with it
    local root="$1" proxies=() name
    shift
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [ -z "${!name:-}" ] || proxies+=("$name=${!name}")
    done
    # A new root rather than chroot alone: in a chroot the kernel allows no namespace of users, which a real machine does.
    # shellcheck disable=SC2016 # the inner shell expands these
    unshare --mount --pid --fork --kill-child --ipc --uts bash -euc '
        root=$1; shift
        mount --make-rprivate /
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        [ -z "${FRESH_CACHE:-}" ] || mount --bind "$FRESH_CACHE" "$root/root/.cache"
        cd "$root"
        pivot_root . mnt
        umount -l /mnt
        cd /home/tidemill/checkout
        exec "$@"
    ' inside "$root" env -i HOME=/root LANG=C.UTF-8 "${proxies[@]}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

run_suite() { # suite: all targets one after the other on one machine, as a newcomer would
    local suite="$1" root target begin
    make_tree "$suite"
    root="$(mktemp -d "$trees/run-XXXXXX")"
    # shellcheck disable=SC2064 # this root, whatever the variable says later
    trap "rm -rf --one-file-system '$root'" EXIT
    tar --numeric-owner -C "$root" -xf "$trees/$suite-$version.tar"
    prepare "$root"
    for target in "${targets[@]}"; do
        begin=$SECONDS
        echo "== Debian $suite: make $target" >&2
        inside "$root" make "$target" || fail "make $target fails on a fresh Debian ($suite); its words are above."
        echo "== Debian $suite: make $target passed after $((SECONDS - begin)) s" >&2
    done
}

if [ -n "${FRESH_CACHE:-}" ]; then mkdir -p "$FRESH_CACHE"; FRESH_CACHE="$(cd "$FRESH_CACHE" && pwd)"; export FRESH_CACHE; fi
for suite in $suites; do (run_suite "$suite"); done
