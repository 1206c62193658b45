package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// The head of the response to an Extended CONNECT.
type opened struct {
	Enabled bool                `json:"enabled"`
	Status  int                 `json:"status"`
	Fields  map[string][]string `json:"fields"`
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Opens a WebSocket with an Extended CONNECT (RFC 9220). Prints the head of the response as a line of JSON; then copies standard input to the
// stream and the stream to standard output, byte for byte. Exits with 3 if the server resets the stream. TERM
// resets it from this side, and the program goes on for the server's answer.
func openWebsocket(target string, protocol string, fields string) {
	address, err := url.Parse(target)
	if err != nil {
		fail(err)
	}
	transport := &http3.Transport{DisableCompression: true}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}
	connection, err := quic.DialAddr(context.Background(), address.Host, config, nil)
	if err != nil {
		fail(err)
	}
	client := transport.NewClientConn(connection)
	<-client.ReceivedSettings()
	head := opened{Enabled: client.Settings().EnableExtendedConnect}
	stream, err := client.OpenRequestStream(context.Background())
	if err != nil {
		fail(err)
	}
	request := &http.Request{Method: http.MethodConnect, Proto: protocol, URL: address, Host: address.Host,
		Header: http.Header{"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Protocol": {"chat"}}}
	own := map[string]string{}
	if err := json.Unmarshal([]byte(fields), &own); err != nil {
		fail(err)
	}
	for name, value := range own {
		request.Header.Set(name, value)
	}
	if err := stream.SendRequestHeader(request); err != nil {
		fail(err)
	}
	response, err := stream.ReadResponse()
	if err != nil {
		fail(err)
	}
	head.Status, head.Fields = response.StatusCode, response.Header
	text, _ := json.Marshal(head)
	fmt.Println(string(text))
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() {
		<-terminated
		stream.CancelRead(0x10c)
		stream.CancelWrite(0x10c)
	}()
	go func() {
		_, _ = io.Copy(stream, bufio.NewReader(os.Stdin))
		_ = stream.Close()
	}()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		fmt.Fprintln(os.Stderr, err)
		_ = connection.CloseWithError(0x100, "")
		os.Exit(3)
	}
	_ = stream.Close()
	_ = connection.CloseWithError(0x100, "")
}
