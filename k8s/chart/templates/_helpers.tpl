{{/* The name of all objects. A Service's name begins with a letter, and has no dot. */}}
{{- define "binlane.name" -}}
{{- $default := contains "binlane" .Release.Name | ternary .Release.Name (printf "%s-binlane" .Release.Name) }}
{{- $name := .Values.fullnameOverride | default $default }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$" $name) }}
{{- fail (printf "objects cannot be named %s: set fullnameOverride to at most 40 of a-z, 0-9 and -, a letter first" $name) }}
{{- end }}
{{- $name }}
{{- end }}

{{/* The text of binlane's configuration. */}}
{{- define "binlane.configuration" -}}
{{- .Values.configuration | default (.Files.Get "files/binlane.yaml") }}
{{- end }}

{{/* The name of the Secret that is mounted; empty if there is none. */}}
{{- define "binlane.secret" -}}
{{- if and .Values.secrets.existing .Values.secrets.files }}
{{- fail "set secrets.existing or secrets.files: only one Secret is mounted" }}
{{- else if .Values.secrets.existing }}
{{- .Values.secrets.existing }}
{{- else if .Values.secrets.files }}
{{- printf "%s-secrets" (include "binlane.name" .) }}
{{- end }}
{{- end }}

{{/*
A manifest of k8s/, for this release: (list . "service.yaml"). Names begin with the release's name instead of
binlane. Wherever a label names the application, another one names the release. Both are quoted, because YAML reads
some names as numbers or booleans.
*/}}
{{- define "binlane.file" -}}
{{- $ := index . 0 }}
{{- $name := include "binlane.name" $ }}
{{- $instance := printf "app.kubernetes.io/instance: %q" $.Release.Name }}
{{- $text := $.Files.Get (printf "files/%s" (index . 1)) }}
{{- $text = regexReplaceAll "(?m)^( *)(app.kubernetes.io/name: .*)$" $text (printf "${1}${2}\n${1}%s" $instance) }}
{{- $text = regexReplaceAll "\\{(app.kubernetes.io/name: [^}]*)\\}" $text (printf "{${1}, %s}" $instance) }}
{{- regexReplaceAll "(?m)^( *name: )binlane(.*)$" $text (printf "${1}\"%s${2}\"" $name) }}
{{- end }}

{{/* The seconds of the longest stop: those of the defaults, and by how much the configuration has longer times. */}}
{{- define "binlane.stop" -}}
{{- $configuration := include "binlane.configuration" . | fromYaml }}
{{- $seconds := 152.0 }}
{{- range $key, $default := dict "shutdown_timeout" 30.0 "revoke_timeout" 10.0 }}
{{- $text := get $configuration $key | toString }}
{{- if regexMatch "^[0-9]+([.][0-9]+)?(ms|s|m|h)$" $text }}
{{- $unit := regexFind "[a-z]+$" $text }}
{{- $all := mulf (trimSuffix $unit $text | float64) (get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) $unit) }}
{{- $seconds = addf $seconds (maxf 0.0 (subf $all $default)) }}
{{- end }}
{{- end }}
{{- ceil $seconds | int }}
{{- end }}

{{/* Fails if this configuration may not run with this workload: "One worker, or several" in docs/deployment.md. */}}
{{- define "binlane.count" -}}
{{- $configuration := include "binlane.configuration" . | fromYaml }}
{{- with $configuration.Error }}{{ fail (printf "the configuration cannot be read: %s" .) }}{{ end }}
{{- $promised := dig "single_writer" false ($configuration.spark | default dict) }}
{{- $alone := or $promised (dig "ddl_topics" list ($configuration.kafka | default dict)) }}
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
