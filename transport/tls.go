package transport

import (
	"crypto/tls"
	"errors"
	"net"
)

// secure adds TLS to c: 1.3, and both ends show a certificate.
func (t TCP) secure(c *carrier) {
	server := t.TLS.Clone()
	server.MinVersion = tls.VersionTLS13
	if server.ClientAuth != tls.RequireAnyClientCert { // who asks for any has a VerifyConnection
		server.ClientAuth = tls.RequireAndVerifyClientCert
	}
	server.DynamicRecordSizingDisabled = true
	server.SessionTicketsDisabled = true // links last: a ticket each would be read and never used
	client := server.Clone()
	c.secure = func(nc net.Conn, isServer bool) (net.Conn, bool) {
		if isServer {
			return tls.Server(nc, server), true
		}
		own := client
		if own.ServerName == "" && !own.InsecureSkipVerify {
			own = client.Clone()
			own.ServerName, _, _ = net.SplitHostPort(nc.RemoteAddr().String())
		}
		return tls.Client(nc, own), true
	}
	if t.Verify != nil {
		c.verify = func(n Name, nc net.Conn) error {
			s, ok := nc.(*tls.Conn)
			if !ok {
				return errors.New("the connection has no TLS")
			}
			return t.Verify(n, s.ConnectionState())
		}
	}
}
