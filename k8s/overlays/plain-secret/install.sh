#!/usr/bin/env bash
# Installs TrainJob Advisor with a certificate from a plain Secret; run it again to renew.
#
#   install.sh                 make a certificate with `trainjob-advisor certs`
#   install.sh DIRECTORY       use ca.crt, tls.crt and tls.key that lie there
set -euo pipefail
cd "$(dirname "$0")"

namespace=trainjob-advisor
root=$(cd ../../.. && pwd)
PATH="$root/.venv/bin:$PATH" # where `make setup` puts trainjob-advisor
if [ $# -gt 0 ]; then
  certificates=$1
else
  certificates=$(mktemp -d)
  trap 'rm -rf "$certificates"' EXIT
  trainjob-advisor certs "$certificates" --service trainjob-advisor --namespace "$namespace"
fi

kubectl create namespace "$namespace" --dry-run=client -o yaml | kubectl apply -f -
kubectl create secret generic trainjob-advisor-tls --namespace "$namespace" --type kubernetes.io/tls \
  --from-file="$certificates/tls.crt" --from-file="$certificates/tls.key" --dry-run=client -o yaml \
  | kubectl apply -f -
kubectl apply -k .

# The API server must know who signed. Both the old and the new authority are named, so that replicas
# which still serve the old certificate are believed until their volume is renewed.
for kind in mutatingwebhookconfiguration validatingwebhookconfiguration; do
  old=$(kubectl get "$kind" trainjob-advisor -o jsonpath='{.webhooks[0].clientConfig.caBundle}' \
    | base64 -d | awk '/BEGIN/ {n++} n <= 1')
  bundle=$({ cat "$certificates/ca.crt"; printf '%s\n' "$old"; } | base64 | tr -d '\n')
  count=$(kubectl get "$kind" trainjob-advisor -o jsonpath='{.webhooks[*].name}' | wc -w)
  patch=""
  for ((index = 0; index < count; index++)); do
    patch+="${patch:+,}{\"op\":\"add\",\"path\":\"/webhooks/$index/clientConfig/caBundle\",\"value\":\"$bundle\"}"
  done
  kubectl patch "$kind" trainjob-advisor --type json -p "[$patch]"
done
kubectl rollout status deployment/trainjob-advisor --namespace "$namespace" --timeout 120s
