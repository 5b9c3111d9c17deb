{{/* Name of everything of the operator; cluster-wide names carry the release, so that two installations do not meet. */}}
{{- define "tidemill.operator" -}}
{{- printf "%s-operator" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* ClusterRole to which the operator binds the drivers of each Module. */}}
{{- define "tidemill.driverRole" -}}
{{- printf "%s-driver" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "tidemill.minio" -}}
{{- printf "%s-minio" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "tidemill.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tidemill.operator" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the operator's pods; they never change between versions. */}}
{{- define "tidemill.operatorSelector" -}}
app.kubernetes.io/name: tidemill-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tidemill.labels" -}}
app.kubernetes.io/part-of: tidemill
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* An image from {repository, tag, digest}; takes a list of it and the default tag. */}}
{{- define "tidemill.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default (index . 1) $image.tag }}
{{- end -}}
{{- end -}}

{{/* Restricted, and what the installation adds to it. */}}
{{- define "tidemill.podSecurity" -}}
{{- $restricted := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- toYaml (merge (dict) .Values.operator.podSecurityContext $restricted) -}}
{{- end -}}

{{- define "tidemill.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* What the operator may do in the namespaces whose Modules it runs. */}}
{{- define "tidemill.operatorRules" -}}
- {apiGroups: [tidemill.dev], resources: [modules], verbs: [list, watch, patch]}
- {apiGroups: [tidemill.dev], resources: [topologies], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [tidemill.dev], resources: [modules/status, topologies/status], verbs: [patch]}
# Owner references with blockOwnerDeletion need this.
- {apiGroups: [tidemill.dev], resources: [modules/finalizers, topologies/finalizers], verbs: [update]}
- {apiGroups: [apps], resources: [deployments, controllerrevisions], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [batch], resources: [jobs], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [configmaps], verbs: [list, watch, create, patch, delete]}
# These go with their Module, whose garbage they are.
- {apiGroups: [""], resources: [services, serviceaccounts], verbs: [list, watch, create, patch]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [list, watch, create, patch]}
- {apiGroups: [""], resources: [pods], verbs: [list, watch]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
# It makes a gateway's token once and can never read one.
- {apiGroups: [""], resources: [secrets], verbs: [create]}
- {apiGroups: [""], resources: [events], verbs: [create]}
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: [list, watch, create, patch, delete]}
# It may hand this one role on and needs none of the role's rights itself.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  resourceNames: [{{ include "tidemill.driverRole" . }}]
  verbs: [bind]
- {apiGroups: [sparkoperator.k8s.io], resources: [sparkapplications], verbs: [list, watch, create, patch, delete]}
{{- end -}}
