package cluster_test

func child() {}
