{{/* Names and labels that several objects share. */}}

{{- define "firebrick.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 characters, so that `-control` still fits into a name of 63. */}}
{{- define "firebrick.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "firebrick.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "firebrick.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What never changes in the life of a release: selectors are made of these. */}}
{{- define "firebrick.selector" -}}
app.kubernetes.io/name: {{ include "firebrick.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "firebrick.labels" -}}
{{ include "firebrick.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "firebrick.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository is empty: name the app's image, such as --set image.repository=registry.example.com/shop" $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "firebrick.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.create -}}
{{- include "firebrick.fullname" . -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{/* The Secret with the token of the control port. */}}
{{- define "firebrick.tokenSecret" -}}
{{- default (printf "%s-control" (include "firebrick.fullname" .)) .Values.control.existingSecret -}}
{{- end -}}

{{- define "firebrick.tokenKey" -}}
{{- if .Values.control.existingSecret -}}{{ .Values.control.existingSecretKey }}{{- else -}}token{{- end -}}
{{- end -}}

{{/* Values that contradict each other. The schema knows each alone. */}}
{{- define "firebrick.checked" -}}
{{- $values := .Values -}}
{{- if and $values.control.enabled (not $values.control.existingSecret) (not $values.control.token) -}}
{{- fail "control.enabled needs a token: name a Secret in control.existingSecret, whose key `token` has one of at least 16 characters, or for a trial set control.token" -}}
{{- end -}}
{{- if and $values.control.existingSecret $values.control.token -}}
{{- fail "control.existingSecret and control.token are both set: remove one" -}}
{{- end -}}
{{- if and (ne $values.autoscaling.kind "none") (not $values.control.enabled) -}}
{{- fail (printf "autoscaling.kind is %s, which reads /metrics of the control port: set control.enabled and control.existingSecret" $values.autoscaling.kind) -}}
{{- end -}}
{{- if and (ne $values.monitor.kind "none") (not $values.control.enabled) -}}
{{- fail (printf "monitor.kind is %s, which reads /metrics of the control port: set control.enabled and control.existingSecret" $values.monitor.kind) -}}
{{- end -}}
{{- if gt (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas is %d and maxReplicas %d: expected minReplicas <= maxReplicas" (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if eq (int $values.server.port) (int $values.control.port) -}}
{{- fail (printf "server.port and control.port are both %d: expected two different ports" (int $values.server.port)) -}}
{{- end -}}
{{- if and $values.httpRoute.enabled (not $values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.enabled needs httpRoute.parentRefs: name the Gateway, such as `- name: public`" -}}
{{- end -}}
{{- if and $values.ingress.enabled (not $values.ingress.hosts) -}}
{{- fail "ingress.enabled needs ingress.hosts: name a host, such as `- host: shop.example.com`" -}}
{{- end -}}
{{- end -}}
