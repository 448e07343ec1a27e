// Package fleet is machines that are lent, and the jobs that run on them, first come first served.
//
// A [Node] is the agent of a machine: it offers cores and memory to a coordinator, and starts processes there when it is told to. At
// the coordinator, which knows the offers (nodes.go), a queue says which job is next and where its workers go (queue.go). A [Coordinator]
// puts these together behind an API in HTTP and JSON, which a [Client] speaks.
//
//	c, err := fleet.New(options)              // trivium up: then c.Run, and c.Handler behind HTTPS
//	err = node.Run(ctx)                       // trivium node
//	client := fleet.NewClient(addr, identity) // trivium train --on
//	job, err := client.Submit(ctx, spec)
//
// What a job is, the package does not know: its payload is its caller's, and so is Options.Run, which runs it.
package fleet
