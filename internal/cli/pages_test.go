package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// blocks are what the pages show in blocks of a language.
func blocks(t *testing.T, language string) (found []string) {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```")
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			found = append(found, m[1])
		}
	}
	return found
}

func TestCommandsInThePagesExist(t *testing.T) {
	s := newSession(t)
	lines := strings.Split(strings.Join(blocks(t, "sh"), ""), "\n")
	templates, err := filepath.Glob("../dashboard/templates/*.html")
	require.NoError(t, err)
	for _, name := range templates {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`<code>(mscheduler [^<{]*)`).FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, m[1])
		}
	}
	checked := 0
	for _, line := range lines {
		command, ok := strings.CutPrefix(strings.TrimPrefix(line, "bin/"), "mscheduler ")
		if !ok {
			continue
		}
		checked++
		args := words(command)
		r := s.run(append(args, "--help")...)
		require.Zero(t, r.code, "%s\n%s", line, r.stderr)
		if !strings.HasPrefix(args[0], "-") { // of a command that does not exist the help is that of mscheduler
			require.Contains(t, r.stdout, "\n  mscheduler "+args[0], line)
		}
		if len(args) > 1 && !strings.HasPrefix(args[1], "-") && args[0] != "bench" { // which takes scenarios beside its commands
			require.NotContains(t, r.stdout, "Available Commands:", line)
		}
	}
	require.Greater(t, checked, 50, "the commands were not found")
}

// words splits a command as a shell does, up to a comment or a redirection.
func words(command string) (args []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(command, -1) {
		if word == ">" || strings.HasPrefix(word, "#") {
			break
		}
		args = append(args, strings.Trim(word, "'"))
	}
	return args
}

func TestFilesInThePagesAreAccepted(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	files := blocks(t, "yaml")
	require.NotEmpty(t, files)
	for _, content := range files {
		command := "type"
		if strings.Contains(content, "cron:") {
			command = "periodic"
		}
		if strings.Contains(content, "\nserve:") {
			s.ok("version", "--config", s.settings(content))
			continue
		}
		s.ok(command, "apply", "-f", s.file(content), "--dry-run")
	}
}
