{{- define "jatah.fullname" -}}
{{- if contains "jatah" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-jatah" (.Release.Name | trunc 44 | trimSuffix "-") }}{{ end -}}
{{- end }}

{{- define "jatah.selector" -}}
app.kubernetes.io/name: jatah
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "jatah.labels" -}}
{{ include "jatah.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "jatah.secretName" -}}
{{- if .Values.existingSecret }}{{ .Values.existingSecret }}{{ else if .Values.secret }}{{ include "jatah.fullname" . }}{{ else -}}
{{- fail "set existingSecret to the name of a Secret, made with: kubectl create secret generic jatah --from-literal=secret=\"$(openssl rand -base64 32)\"; or set secret" -}}
{{- end -}}
{{- end }}

{{- define "jatah.expect" -}}
{{- if ge (int .Values.expect) 0 }}{{ int .Values.expect }}{{ else }}{{ int .Values.replicas }}{{ end -}}
{{- end }}

{{/* A probe of a path: by HTTP, or by command where clients need a certificate, which the kubelet has none of. */}}
{{- define "jatah.probe" -}}
{{- $v := .root.Values -}}
{{- if and $v.tls.secretName $v.tls.clientCA (eq $v.tls.clientAuth "require") -}}
exec:
  command: [/jatah, health, {{ if eq .path "/healthz" }}--live, {{ end }}--addr, "https://127.0.0.1:8080", --ca, /etc/jatah-tls/ca.crt, --cert, /etc/jatah-tls/tls.crt, --key, /etc/jatah-tls/tls.key]
{{- else -}}
httpGet: {path: {{ .path }}, port: http{{ if $v.tls.secretName }}, scheme: HTTPS{{ end }}}
{{- end -}}
{{- end }}
