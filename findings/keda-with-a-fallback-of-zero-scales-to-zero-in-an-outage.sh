#!/usr/bin/env bash
# KEDA: `fallback` with 0 replicas and `behavior: currentReplicasIfHigher` scales to zero while its source of metrics fails. Without a fallback, pods stay.
#
# Versions: github.com/kedacore/keda/v2 v2.21.0 (the operator's own code decides; the API server is a stand-in), Go 1.26.
# Valid input: a ScaledObject with `minReplicaCount: 0` and ten replicas, whose trigger answers with an error. The schema of KEDA's kind allows
# `fallback.replicas: 0`, together with each behaviour.
# A user would expect 10 from the name of the behaviour: that is higher than 0. "Keep what runs, and start nothing by yourself" can't be said in another way.
# Behaviour: the operator takes 0 replicas for "nothing to fall back to", so the failed trigger counts as one without demand, and after
# `cooldownPeriod` it scales to `minReplicaCount`. With 1 it leaves the pods alone, and so it does without any fallback: the setting that
# is meant for an outage is what ends all pods in one. The fallback's behaviour is only asked for when the autoscaler wants the metric.
# Output seen:
#   no fallback:                                 10 replicas
#   fallback of 1, currentReplicasIfHigher:      10 replicas
#   fallback of 0, currentReplicasIfHigher:      0 replicas
#   fallback of 0, currentReplicas:              0 replicas
# Ends with 0 if it is so, with 1 if it has changed, with 2 if the module can't be had. Compiles for some minutes, in a temporary folder.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
cat >main_test.go <<'GO'
package finding

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/mock/gomock"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/kedacore/keda/v2/pkg/mock/mock_client"
	"github.com/kedacore/keda/v2/pkg/mock/mock_scale"
	"github.com/kedacore/keda/v2/pkg/scaling/executor"
)

// The replicas of a Deployment of ten after one look at a trigger that fails.
func replicas(t *testing.T, fallback *v1alpha1.Fallback) int32 {
	control := gomock.NewController(t)
	client, scales, scale := mock_client.NewMockClient(control), mock_scale.NewMockScalesGetter(control), mock_scale.NewMockScaleInterface(control)
	none, ten := int32(0), int32(10)
	client.EXPECT().Get(gomock.Any(), gomock.Any(), gomock.Any()).SetArg(2, appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &ten}}).AnyTimes()
	now := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: ten}}
	scales.EXPECT().Scales(gomock.Any()).Return(scale).AnyTimes()
	scale.EXPECT().Get(gomock.Any(), gomock.Any(), gomock.Any(), gomock.Any()).Return(now, nil).AnyTimes()
	scale.EXPECT().Update(gomock.Any(), gomock.Any(), gomock.Any(), gomock.Any()).Return(now, nil).AnyTimes()
	object := v1alpha1.ScaledObject{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "here"},
		Spec: v1alpha1.ScaledObjectSpec{ScaleTargetRef: &v1alpha1.ScaleTarget{Name: "pool"}, MinReplicaCount: &none, Fallback: fallback},
		Status: v1alpha1.ScaledObjectStatus{ScaleTargetGVKR: &v1alpha1.GroupVersionKindResource{Group: "apps", Kind: "Deployment"}},
	}
	object.Status.Conditions = *v1alpha1.GetInitializedConditions()
	active, failed := false, true
	executor.NewScaleExecutor(client, scales, nil, 0, events.NewFakeRecorder(9)).RequestScale(context.Background(), &object, active, failed, executor.ScaleExecutorOptions{})
	return now.Spec.Replicas
}

func TestSeen(t *testing.T) {
	for _, each := range []struct {
		name     string
		fallback *v1alpha1.Fallback
	}{
		{"no fallback:", nil},
		{"fallback of 1, currentReplicasIfHigher:", &v1alpha1.Fallback{FailureThreshold: 3, Replicas: 1, Behavior: "currentReplicasIfHigher"}},
		{"fallback of 0, currentReplicasIfHigher:", &v1alpha1.Fallback{FailureThreshold: 3, Replicas: 0, Behavior: "currentReplicasIfHigher"}},
		{"fallback of 0, currentReplicas:", &v1alpha1.Fallback{FailureThreshold: 3, Replicas: 0, Behavior: "currentReplicas"}},
	} {
		fmt.Printf("%-44s %d replicas\n", each.name, replicas(t, each.fallback))
	}
}
GO
export GOPATH=$folder/go GOCACHE=$folder/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local
go mod init finding >/dev/null 2>&1
go get github.com/kedacore/keda/v2@v2.21.0 go.uber.org/mock k8s.io/api@v0.36.4 k8s.io/client-go@v0.36.4 >/dev/null 2>&1 || { echo "the pinned module can't be had" >&2; exit 2; }
found=$(go test -count=1 -vet=off . -v | grep replicas)
echo "$found"
[ "$found" = "no fallback:                                 10 replicas
fallback of 1, currentReplicasIfHigher:      10 replicas
fallback of 0, currentReplicasIfHigher:      0 replicas
fallback of 0, currentReplicas:              0 replicas" ] || { echo "it has changed"; exit 1; }
