#!/usr/bin/env bash
# The first process of a node, in network, mount and process namespaces of its own. It keeps the node's programs running;
# when it is killed the kernel ends all that runs in the node and forgets its mounts, as if power had failed.
set -eu
folder="$1" log="$2" name="$3" kubelet="$4" kube_proxy="$5" kubeconfig="$6" pods="$7"

mount --make-rshared /
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mkdir -p /run/containerd /run/lock /run/disks
mount --bind "$folder/disks" /run/disks
mount -t tmpfs tmpfs /var/lib/kubelet # the kubelet writes there whatever its root folder

keep() { # program arguments...: starts it again when it ends
    local log="$log/$1.log"
    shift
    while :; do
        "$@" >>"$log" 2>&1 || true
        sleep 1
    done
}

keep containerd containerd -c "$folder/containerd.toml" &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
keep kubelet "$kubelet" --config="$folder/kubelet.yaml" --kubeconfig="$folder/kubelet.kubeconfig" \
    --root-dir="$folder/kubelet" --cert-dir="$folder/kubelet/pki" --hostname-override="$name" --node-ip="$8" &
keep kube-proxy "$kube_proxy" --kubeconfig="$kubeconfig" --hostname-override="$name" --proxy-mode=iptables \
    --cluster-cidr="$pods" --iptables-min-sync-period=100ms --conntrack-max-per-core=0 \
    --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 &
wait
