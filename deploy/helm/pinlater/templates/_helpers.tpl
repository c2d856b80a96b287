{{- /* The name of the release's objects, short enough for a suffix. */}}
{{- define "pinlater.name" -}}
{{- $release := .Release.Name | trunc 37 | trimSuffix "-" -}}
{{- contains "pinlater" $release | ternary $release (printf "%s-pinlater" ($release | trunc 28 | trimSuffix "-")) -}}
{{- end }}

{{- define "pinlater.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Of the pods of a component. Takes (dict "root" $ "component" NAME). */}}
{{- define "pinlater.selector" -}}
app.kubernetes.io/name: pinlater
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "pinlater.labels" -}}
{{ include "pinlater.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- /* What the components of servers are called: server, or enqueue and dequeue. */}}
{{- define "pinlater.component" -}}
{{ eq .role "all" | ternary "server" .role }}
{{- end }}

{{- /* The service of the servers that own queues: workers, console and autoscaling ask these. */}}
{{- define "pinlater.owners" -}}
{{- $owners := list -}}
{{- range .Values.servers }}{{- if ne .role "enqueue" }}{{- $owners = append $owners (include "pinlater.component" .) }}{{- end }}{{- end -}}
{{ include "pinlater.name" . }}-{{ first $owners }}
{{- end }}

{{- /* Refuses values that the schema can't. Each text begins with the name of the value. */}}
{{- define "pinlater.check" -}}
{{- $values := .Values -}}
{{- $roles := list -}}
{{- range $values.servers }}{{- $roles = append $roles .role }}{{- end -}}
{{- $roles = $roles | sortAlpha | join " and " -}}
{{- if not (has $roles (list "all" "dequeue and enqueue")) }}
{{- fail (printf "servers: name the role all once, or the roles enqueue and dequeue once each, not %s" $roles) }}
{{- end }}
{{- with $values.store }}
{{- if eq .kind "sqlite" }}
{{- if or .url .shards .password }}{{ fail "store.kind: sqlite has no url, shards and password" }}{{ end }}
{{- if or (ne $roles "all") (gt (int (first $values.servers).replicas) 1) }}{{ fail "servers: SQLite has one server, with the role all" }}{{ end }}
{{- if $values.zookeeper.address }}{{ fail "zookeeper.address: SQLite has one server, and nothing to coordinate" }}{{ end }}
{{- else }}
{{- if eq (empty .url) (empty .shards) }}{{ fail (printf "store.url: %s wants either url or shards" .kind) }}{{ end }}
{{- if and .url (not (hasPrefix .kind .url)) }}{{ fail (printf "store.url: %s is no address of %s" .url .kind) }}{{ end }}
{{- end }}
{{- end }}
{{- if eq (empty $values.access.tokens) (not $values.access.insecure) }}
{{- fail "access.tokens: servers listen on the network, so they want a file of tokens, or access.insecure: true" }}
{{- end }}
{{- $owned := list "store" "host" "thrift.port" "http.port" "role" "console" "drain_timeout_s" "advertised_address" "admin_password_hash"
      "access.tokens_file" "access.insecure" "tls.certificate_file" "tls.key_file" "http.host" "thrift.host" "mysql.password_file" "redis.password_file"
      "cluster.coordinator" "cluster.zookeeper" "cluster.zookeeper_user" "cluster.zookeeper_password_file" "cluster.zookeeper_tls"
      "cluster.zookeeper_ca_file" -}}
{{- range $key, $_ := $values.settings }}
{{- if has $key $owned }}{{ fail (printf "settings: %s follows from other values" $key) }}{{ end }}
{{- end }}
{{- $tokens := and $values.access.tokens (not (hasKey $values.settings "access.default_roles")) -}}
{{- $names := list -}}
{{- range $values.pools }}
{{- $pool := .name }}
{{- $token := .token }}
{{- if has $pool $names }}{{ fail (printf "pools: two are called %s" $pool) }}{{ end }}
{{- $names = append $names $pool }}
{{- range .volumes }}
{{- if has .name (list "tmp" "tls" "token") }}{{ fail (printf "pools.%s.volumes: the chart has one called %s" $pool .name) }}{{ end }}
{{- end }}
{{- range .env }}
{{- if eq .name "PINLATER_TOKEN" }}{{ $token = . }}{{ end }}
{{- if has .name (list "PINLATER_SERVERS" "PINLATER_ENQUEUE_SERVERS" "PINLATER_TLS_CA_FILE" "PINLATER_TLS_SERVER_NAME" "PINLATER_TOKEN_FILE") }}
{{- fail (printf "pools.%s.env: %s follows from other values" $pool .name) }}
{{- end }}
{{- end }}
{{- if and $tokens (not $token) }}
{{- fail (printf "pools.%s.token: servers with tokens want one of the roles work and produce" $pool) }}
{{- end }}
{{- if and .autoscaling $values.autoscaling.enabled (not $values.autoscaling.prometheus) (gt (len .queues) 32) }}
{{- fail (printf "pools.%s.queues: autoscaling asks for 32 queues at most, unless by autoscaling.prometheus" $pool) }}
{{- end }}
{{- with .autoscaling }}
{{- if gt (int (.minReplicas | default 0)) (int .maxReplicas) }}
{{- fail (printf "pools.%s.autoscaling.maxReplicas: %d is less than minReplicas, %d" $pool (int .maxReplicas) (int .minReplicas)) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $values.autoscaling.prometheus (not $values.autoscaling.prometheusLabels) }}
{{- fail "autoscaling.prometheusLabels: name the labels by which Prometheus tells the servers of this release from others" }}
{{- end }}
{{- if and $values.autoscaling.enabled $tokens (not $values.autoscaling.token) (not $values.autoscaling.prometheus) }}
{{- fail "autoscaling.token: servers with tokens want one of the role read" }}
{{- end }}
{{- end }}

{{- /* Refuses another volume than the StatefulSet has: the API server would refuse it without a name. Takes (dict "root" $ "set" NAME). */}}
{{- define "pinlater.checkVolume" -}}
{{- $wanted := .root.Values.store.volume -}}
{{- with lookup "apps/v1" "StatefulSet" .root.Release.Namespace .set }}
{{- $there := (first .spec.volumeClaimTemplates).spec }}
{{- $way := "and an upgrade can't change it: docs/how-to/kubernetes.md says how to get a larger volume" }}
{{- if ne (toString $wanted.size) $there.resources.requests.storage }}
{{- fail (printf "store.volume.size: the volume has %s, %s" $there.resources.requests.storage $way) }}
{{- end }}
{{- if ne ($wanted.storageClassName | default "") ($there.storageClassName | default "") }}
{{- fail (printf "store.volume.storageClassName: the volume has %q, %s" ($there.storageClassName | default "") $way) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* How a pod reaches the servers, as JSON: env, volumes, mounts. */}}
{{- define "pinlater.client" -}}
{{- $servers := include "pinlater.owners" . -}}
{{- $env := list (dict "name" "PINLATER_SERVERS" "value" (printf "%s:9010" $servers)) -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- $name := include "pinlater.name" . -}}
{{- range .Values.servers -}}
{{- if eq .role "enqueue" -}}
{{- $env = append $env (dict "name" "PINLATER_ENQUEUE_SERVERS" "value" (printf "%s-enqueue:9010" $name)) -}}
{{- end -}}
{{- end -}}
{{- with .Values.tls.secret -}}
{{- $env = concat $env (list
      (dict "name" "PINLATER_TLS_CA_FILE" "value" "/etc/pinlater/tls/ca.crt")
      (dict "name" "PINLATER_TLS_SERVER_NAME" "value" $servers)) -}}
{{- $volumes = append $volumes (include "pinlater.secretVolume" (list "tls" (dict "secret" . "key" "ca.crt")) | fromYaml) -}}
{{- $mounts = append $mounts (dict "name" "tls" "mountPath" "/etc/pinlater/tls" "readOnly" true) -}}
{{- end -}}
{{ dict "env" $env "volumes" $volumes "mounts" $mounts | toJson }}
{{- end }}

{{- /* The spec of a pod with one container, called by its labels' component. Takes a dict: root; settings (cpu, memory, pod); image, and
"own" if it is that of the chart; args, with command for a program that is not the image's; env; ports; probe (port, live, ready, and more
fields of httpGet); grace, in seconds; volumes; mounts. */}}
{{- define "pinlater.pod" -}}
{{- $pod := .settings.pod | default dict -}}
automountServiceAccountToken: false
{{- /* The variables of links would look like settings. */}}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ add (int .grace) 10 }}
securityContext:
  runAsNonRoot: true
  {{- with $pod.runAsUser | default (.own | ternary 9010 nil) }}
  runAsUser: {{ int . }}
  {{- end }}
  {{- if .own }}
  runAsGroup: 9010
  {{- end }}
  {{- /* This group may read the secrets, and write the volume of SQLite. */}}
  fsGroup: {{ $pod.fsGroup | default 9010 | int }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ quote . }}
  {{- end }}
{{- end }}
{{- with omit $pod "runAsUser" "fsGroup" }}
{{ toYaml . }}
{{- end }}
containers:
  - name: pinlater
    image: {{ quote .image }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    {{- with .command }}
    command: {{ toJson . }}
    {{- end }}
    args:
      {{- range .args }}
      - {{ quote . }}
      {{- end }}
    {{- with .env }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      {{- range $name, $port := .ports }}
      - name: {{ $name }}
        containerPort: {{ $port }}
      {{- end }}
    {{- $more := omit .probe "port" "live" "ready" }}
    startupProbe:
      httpGet:
        {{- toYaml (merge (dict "path" .probe.live "port" .probe.port) $more) | nindent 8 }}
      periodSeconds: 2
      failureThreshold: 150
    livenessProbe:
      httpGet:
        {{- toYaml (merge (dict "path" .probe.live "port" .probe.port) $more) | nindent 8 }}
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet:
        {{- toYaml (merge (dict "path" .probe.ready "port" .probe.port) $more) | nindent 8 }}
      periodSeconds: 5
      timeoutSeconds: 5
    {{- /* No limit of CPU, which would slow a pod on an idle node. */}}
    {{- $requests := pick .settings "cpu" "memory" }}
    {{- with $requests }}
    resources:
      requests:
        {{- toYaml . | nindent 8 }}
      {{- with pick . "memory" }}
      limits:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    volumeMounts:
      {{- toYaml (prepend .mounts (dict "name" "tmp" "mountPath" "/tmp")) | nindent 6 }}
volumes:
  {{- toYaml (prepend .volumes (dict "name" "tmp" "emptyDir" dict)) | nindent 2 }}
{{- end }}

{{- /* A variable from a secret. Takes (list NAME REFERENCE). */}}
{{- define "pinlater.secretVariable" -}}
name: {{ index . 0 }}
valueFrom:
  secretKeyRef:
    name: {{ (index . 1).secret | quote }}
    key: {{ (index . 1).key | quote }}
{{- end }}

{{- /* A volume with one key of a secret. Takes (list NAME REFERENCE). */}}
{{- define "pinlater.secretVolume" -}}
name: {{ index . 0 }}
secret:
  secretName: {{ (index . 1).secret | quote }}
  defaultMode: 0440
  items:
    - key: {{ (index . 1).key | quote }}
      path: {{ (index . 1).key | quote }}
{{- end }}
