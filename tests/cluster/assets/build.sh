#!/usr/bin/env bash
# Builds kube-apiserver, etcd and kubectl from the versions pinned in go.mod into a cache outside the
# repository, and prints that folder: the value of KUBEBUILDER_ASSETS. What is there already stays.
#
#   tests/cluster/assets/build.sh            build what is missing, print the folder
#   tests/cluster/assets/build.sh --where    print the folder only
#
# BUILD_JOBS (default 2) limits the compilers that run side by side.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

version_of() { awk -v module="$1" '$1 == module && $2 ~ /^v/ { print $2; exit }' go.mod; }

kubernetes=$(version_of k8s.io/kubernetes)
etcd=$(version_of go.etcd.io/etcd/server/v3)
folder="${XDG_CACHE_HOME:-$HOME/.cache}/trainjob-advisor/assets/kubernetes-$kubernetes-etcd-$etcd"
[[ "${1:-}" == --where ]] && { echo "$folder"; exit; }

stamp() { printf -- '-X k8s.io/component-base/version.%s ' "$@"; }
IFS=. read -r major minor _ <<<"${kubernetes#v}"
flags="-s -w $(stamp "gitVersion=$kubernetes" "gitMajor=$major" "gitMinor=$minor" gitTreeState=clean)"

build() { # name, package: through a temporary name, so that an interrupted build leaves nothing behind
  [[ -x "$folder/$1" ]] && return
  command -v go >/dev/null || {
    echo "Go is not installed. Install it, or set KUBEBUILDER_ASSETS to the folder that" \
      "\`setup-envtest use -p path\` prints." >&2
    exit 1
  }
  local started=$SECONDS part="$folder/.$1.$$"
  CGO_ENABLED=0 nice go build -mod=readonly -p "${BUILD_JOBS:-2}" -trimpath -ldflags "$flags" -o "$part" "$2"
  mv "$part" "$folder/$1"
  echo "built $1 in $((SECONDS - started)) s, $(du -m "$folder/$1" | cut -f1) MiB" >&2
}

mkdir -p "$folder"
build etcd go.etcd.io/etcd/server/v3
build kubectl k8s.io/kubernetes/cmd/kubectl
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
echo "$folder"
