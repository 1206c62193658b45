// CoreDNS for script/kube: names of services and pods. Nothing of this is shipped.
module firebrick/dns

go 1.26.0

tool github.com/coredns/coredns

require (
	github.com/coredns/coredns v1.15.0
)
