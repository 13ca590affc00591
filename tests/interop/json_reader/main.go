// Command json_reader reads a JSON document from each line, as a Go handler does, and writes it as Go does.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		fmt.Println(rewrite(line))
	}
}

func rewrite(line []byte) string {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(line))
	// Numbers keep their digits, as in a field of type int64 or json.Number.
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return "error: " + err.Error()
	}
	written, err := json.Marshal(value)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(written)
}
