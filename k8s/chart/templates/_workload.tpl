{{/* The Deployment or StatefulSet: that of k8s/base, with this release's values. */}}
{{- define "binlane.workload" -}}
{{- include "binlane.count" . }}
{{- $name := include "binlane.name" . }}
{{- $one := include "binlane.file" (list . "deployment.yaml") | fromYaml }}
{{- $spec := $one.spec }}
{{- $metadata := $spec.template.metadata }}
{{- $pod := $spec.template.spec }}
{{- $worker := index $pod.containers 0 }}

{{- $_ := set $spec "replicas" .Values.replicas }}
{{- if .Values.strategy }}{{ $_ = set $spec "strategy" .Values.strategy }}{{ end }}
{{- if .Values.keda.enabled }}
{{- /* KEDA owns this value from now on. */}}
{{- $_ = unset $spec "replicas" }}
{{- $update := dict "type" "RollingUpdate" "rollingUpdate" (dict "maxSurge" 1 "maxUnavailable" 0) }}
{{- $_ = set $spec "strategy" (.Values.strategy | default $update) }}
{{- end }}

{{- /* A change of the configuration or of a secret rolls the pods. */}}
{{- if .Values.monitoring.enabled }}{{ $_ = unset $metadata "annotations" }}{{ end }}
{{- $content := printf "%s%s" (include "binlane.configuration" .) (toJson .Values.secrets.files) }}
{{- $checksum := dict "checksum/configuration" (sha256sum $content) }}
{{- $_ = set $metadata "annotations" (merge $checksum .Values.podAnnotations ($metadata.annotations | default dict)) }}
{{- $_ = set $metadata "labels" (merge $metadata.labels .Values.podLabels) }}

{{- $_ = set $pod "serviceAccountName" $name }}
{{- if .Values.imagePullSecrets }}{{ $_ = set $pod "imagePullSecrets" .Values.imagePullSecrets }}{{ end }}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- $_ = set $worker "image" (printf "%s:%s" .Values.image.repository $tag) }}
{{- with .Values.image.digest }}
{{- $_ = set $worker "image" (printf "%s@%s" $.Values.image.repository .) }}
{{- end }}
{{- $_ = set $worker "imagePullPolicy" .Values.image.pullPolicy }}
{{- if .Values.resources }}{{ $_ = set $worker "resources" .Values.resources }}{{ end }}
{{- if .Values.envFrom }}{{ $_ = set $worker "envFrom" .Values.envFrom }}{{ end }}
{{- $env := .Values.env }}
{{- range $worker.env }}
{{- $default := . }}
{{- $replaced := false }}
{{- range $.Values.env }}{{ if eq .name $default.name }}{{ $replaced = true }}{{ end }}{{ end }}
{{- if not $replaced }}{{ $env = append $env . }}{{ end }}
{{- end }}
{{- $_ = set $worker "env" $env }}

{{- $volumes := .Values.volumes }}
{{- $mounts := concat $worker.volumeMounts .Values.volumeMounts }}
{{- range $pod.volumes }}
{{- if eq .name "config" }}{{ $_ = set .configMap "name" $name }}{{ end }}
{{- if not (and (eq $.Values.kind "StatefulSet") (eq .name "state")) }}{{ $volumes = append $volumes . }}{{ end }}
{{- end }}
{{- with include "binlane.secret" . }}
{{- $volumes = append $volumes (dict "name" "secrets" "secret" (dict "secretName" . "defaultMode" 0440)) }}
{{- $mounts = append $mounts (dict "name" "secrets" "mountPath" "/etc/secrets" "readOnly" true) }}
{{- end }}
{{- if .Values.sparkOnKubernetes.enabled }}
{{- $_ = set $pod "automountServiceAccountToken" true }}
{{- $driver := dict "name" "driver" "containerPort" 7078 }}
{{- $_ = set $worker "ports" (concat $worker.ports (list $driver (dict "name" "blocks" "containerPort" 7079))) }}
{{- $executor := dict "name" (printf "%s-executor" $name) }}
{{- $volumes = append $volumes (dict "name" "executor" "configMap" $executor) }}
{{- $mounts = append $mounts (dict "name" "executor" "mountPath" "/etc/binlane-executor" "readOnly" true) }}
{{- end }}
{{- $_ = set $pod "volumes" $volumes }}
{{- $_ = set $worker "volumeMounts" $mounts }}
{{- $_ = set $spec.template "spec" (mergeOverwrite $pod (deepCopy .Values.pod)) }}
{{- $least := include "binlane.stop" . | int }}
{{- if lt (int $pod.terminationGracePeriodSeconds) $least }}
{{- fail (printf "pod.terminationGracePeriodSeconds must be at least %d to hold a stop: docs/deployment.md, Stopping" $least) }}
{{- end }}

{{- if eq .Values.kind "StatefulSet" }}
{{- $_ = set $one "kind" "StatefulSet" }}
{{- $_ = unset $spec "strategy" }}
{{- $_ = set $spec "serviceName" (printf "%s-pods" $name) }}
{{- /* Start all pods at once: no worker waits for another. */}}
{{- $_ = set $spec "podManagementPolicy" "Parallel" }}
{{- $request := dict "requests" (dict "storage" .Values.storage.size) }}
{{- $claim := dict "accessModes" (list "ReadWriteOnce") "resources" $request }}
{{- with .Values.storage.className }}{{ $_ = set $claim "storageClassName" . }}{{ end }}
{{- $state := dict "metadata" (dict "name" "state") "spec" $claim }}
{{- $_ = set $spec "volumeClaimTemplates" (list $state) }}
{{- end }}
{{- toYaml $one }}
{{- end }}
