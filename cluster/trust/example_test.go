package trust_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/trivium-ml/trivium/cluster/trust"
)

func Example() {
	// The coordinator.
	authority, _ := trust.NewAuthority(time.Now()) // OpenAuthority keeps it in a directory
	self, _ := authority.Identity(trust.Name{Role: trust.CoordinatorRole, ID: "0"}, []string{"127.0.0.1"}, time.Now())
	secret, _ := trust.NewSecret()
	mux := http.NewServeMux()
	mux.Handle("POST /v1/join", &trust.Issuer{Authority: authority, Secret: secret, Extra: []byte("etcd at 10.0.0.1:2379")})
	server := httptest.NewUnstartedServer(mux)
	server.TLS = self.OpenConfig()
	server.StartTLS()
	defer server.Close()
	text := trust.Token{Secret: secret, CA: authority.Hash()}.String()

	// A machine that was given the address and the token.
	token, _ := trust.ParseToken(text)
	node, extra, err := trust.Join(context.Background(), server.Listener.Addr().String(), token, trust.JoinOptions{
		Name: trust.Name{Role: "node", ID: "7"},
	})
	fmt.Printf("%s knows of %s, %v\n", node.Name, extra, err)

	_, err = trust.ParseToken(text[:len(text)-3])
	fmt.Println(err)
	// Output:
	// node/7 knows of etcd at 10.0.0.1:2379, <nil>
	// trust: a token has 92 characters, and this one has 89: copy it again from where the coordinator printed it
}
