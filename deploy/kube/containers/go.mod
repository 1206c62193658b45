// What a kubelet runs pods with, for script/kube: containerd, and plugins for the network. Apart from Kubernetes, because both name versions of the
// same modules. Nothing of this is shipped.
module firebrick/containers

go 1.26.0

tool (
	github.com/containerd/containerd/v2/cmd/containerd
	github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
	github.com/containerd/containerd/v2/cmd/ctr
	github.com/containernetworking/plugins/plugins/ipam/host-local
	github.com/containernetworking/plugins/plugins/main/bridge
	github.com/containernetworking/plugins/plugins/main/loopback
)

require (
	github.com/containerd/containerd/v2 v2.2.9
	github.com/containernetworking/plugins v1.9.1
)
