// A server and a client of HTTP in one small program, for tests of the cluster itself.
//
//	probe serve PORT TEXT   answers TEXT to everyone
//	probe caller PORT       answers the caller's address
//	probe get URL           prints the answer; exit status 1 when there is none within 3 s
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	var err error
	switch os.Args[1] {
	case "serve":
		err = serve(os.Args[2], func(asked *http.Request) string { return os.Args[3] })
	case "caller":
		err = serve(os.Args[2], func(asked *http.Request) string {
			host, _, _ := net.SplitHostPort(asked.RemoteAddr)
			return host
		})
	case "get":
		err = get(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(port string, say func(*http.Request) string) error {
	return http.ListenAndServe(":"+port, http.HandlerFunc(func(answer http.ResponseWriter, asked *http.Request) {
		fmt.Fprint(answer, say(asked))
	}))
}

func get(url string) error {
	client := http.Client{Timeout: 3 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}
