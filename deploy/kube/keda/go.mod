// KEDA for script/kube, in the version whose definitions the chart is compared with (deploy/kube/lab/schemas.rb). Nothing of this is shipped.
module firebrick/keda

go 1.26.0

tool (
	github.com/kedacore/keda/v2/cmd/adapter
	github.com/kedacore/keda/v2/cmd/operator
)

require (
	github.com/kedacore/keda/v2 v2.21.0
)
