// What checks the chart (main.go), and Helm for script/kube. Nothing of this is shipped.
module firebrick/chart

go 1.26.0

tool helm.sh/helm/v3/cmd/helm

require (
	github.com/fatih/color v1.16.0 // indirect
	github.com/yannh/kubeconform v0.8.0
	helm.sh/helm/v3 v3.22.0
)
