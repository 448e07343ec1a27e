//go:build !unix

package cluster_test

// child is of tests with signals, which this system does not have.
func child() {}
