{{/* The name of all objects. */}}
{{- define "binlane.name" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains "binlane" .Release.Name }}
{{- .Release.Name }}
{{- else }}
{{- printf "%s-binlane" .Release.Name }}
{{- end }}
{{- end }}

{{/* The text of binlane's configuration. */}}
{{- define "binlane.configuration" -}}
{{- .Values.configuration | default (.Files.Get "files/binlane.yaml") }}
{{- end }}

{{/* The name of the Secret that is mounted; empty if there is none. */}}
{{- define "binlane.secret" -}}
{{- if .Values.secrets.existing }}
{{- .Values.secrets.existing }}
{{- else if .Values.secrets.files }}
{{- printf "%s-secrets" (include "binlane.name" .) }}
{{- end }}
{{- end }}

{{/*
A manifest of k8s/, for this release: (list . "service.yaml"). Names begin with the release's name instead of
binlane. Wherever a label names the application, another one names the release.
*/}}
{{- define "binlane.file" -}}
{{- $ := index . 0 }}
{{- $name := include "binlane.name" $ }}
{{- $instance := printf "app.kubernetes.io/instance: %s" $.Release.Name }}
{{- $text := $.Files.Get (printf "files/%s" (index . 1)) }}
{{- $text = regexReplaceAll "(?m)^( *)(app.kubernetes.io/name: .*)$" $text (printf "${1}${2}\n${1}%s" $instance) }}
{{- $text = regexReplaceAll "\\{(app.kubernetes.io/name: [^}]*)\\}" $text (printf "{${1}, %s}" $instance) }}
{{- regexReplaceAll "(?m)^( *name: )binlane" $text (printf "${1}%s" $name) }}
{{- end }}

{{/* Fails if this configuration may not run with this workload: "One worker, or several" in docs/deployment.md. */}}
{{- define "binlane.count" -}}
{{- $configuration := include "binlane.configuration" . | fromYaml }}
{{- $promised := dig "spark" "single_writer" false $configuration }}
{{- $alone := or $promised (dig "kafka" "ddl_topics" list $configuration) }}
{{- $recreated := eq (.Values.strategy.type | default "Recreate") "Recreate" }}
{{- if $alone }}
{{- if or (gt (int .Values.replicas) 1) .Values.keda.enabled }}
{{- fail "spark.single_writer and kafka.ddl_topics need one worker: set replicas to 1, and disable keda" }}
{{- end }}
{{- if and (eq .Values.kind "Deployment") (or $promised (not $recreated)) }}
{{- fail "a Deployment may run two pods for a while, and this configuration needs one worker: set kind to StatefulSet" }}
{{- end }}
{{- end }}
{{- end }}
