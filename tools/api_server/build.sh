#!/bin/sh
# Builds Kubernetes' API server into a folder, with the definitions of the resources that KEDA and the Prometheus
# operator bring. All of it comes as Go modules, each held against go.sum. Once: ten minutes of two processors, 3 GB.
#
#   build.sh FOLDER     FOLDER/kube-apiserver, FOLDER/definitions/*.yaml
set -eu
to=$1
cd "$(dirname "$0")"

rm -rf "$to.part"
mkdir -p "$to.part/definitions"
(
    cd resources
    go mod download -json github.com/kedacore/keda/v2@v2.21.0 \
        github.com/prometheus-operator/prometheus-operator@v0.85.0
) | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p' | while read -r module; do
    for file in config/crd/bases/keda.sh_scaledobjects \
        example/prometheus-operator-crd/monitoring.coreos.com_alertmanagerconfigs \
        example/prometheus-operator-crd/monitoring.coreos.com_podmonitors \
        example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules \
        example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors; do
        [ ! -f "$module/$file.yaml" ] || cp "$module/$file.yaml" "$to.part/definitions/"
    done
done
[ "$(find "$to.part/definitions" -type f | wc -l)" = 5 ] || {
    echo "build.sh: the definitions of KEDA and of the Prometheus operator could not be fetched" >&2
    exit 1
}
# Helm compares the server's version with the chart's kubeVersion.
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
CGO_ENABLED=0 nice go build -mod=readonly -trimpath -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version" \
    -o "$to.part/kube-apiserver" .
chmod -R a+rX "$to.part"
rm -rf "$to"
mv "$to.part" "$to"
