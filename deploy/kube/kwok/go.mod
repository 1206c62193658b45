// kwok for script/kube: nodes without machines. Nothing of this is shipped.
module firebrick/kwok

go 1.26.0

tool sigs.k8s.io/kwok/cmd/kwok

require (
	sigs.k8s.io/kwok v0.8.0
)
