// Package redact takes secrets out of texts that others made: error texts of
// providers, tools and libraries, before they are logged, stored or shown.
package redact

import (
	"regexp"
	"slices"
	"strings"
)

// Mark stands where a secret was.
const Mark = "[redacted]"

var patterns = []struct {
	secret *regexp.Regexp
	with   string
}{
	// Keys by their prefixes, and what follows an authentication scheme.
	{regexp.MustCompile(`(?i)\b(sk|pk|rk|gsk|xai|key|nvapi|hf|ghp|gho|xoxb|xoxp)[-_][\w*.-]{6,}|\b(AIza|AKIA|ASIA)[\w-]{10,}`), Mark},
	{regexp.MustCompile(`(?i)\bbearer\s+[\w*.=+/-]{6,}`), Mark},
	// Headers, environment and JSON: a name that says what its value is.
	{regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|x-api-key|api[-_]?key|access[-_]?token|client[-_]?secret|password|passwd)("?\s*[:=]\s*"?)(?:(?:basic|digest|token)\s+)?[^\s"',;&}\[]+`), "$1$2" + Mark},
	// User and password in an address, and secrets in its query.
	{regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@?#"'<>]+@`), "$1" + Mark + "@"},
	{regexp.MustCompile(`(?i)([?&][\w.-]*(?:key|token|secret|passwo?r?d|signature|sig|credential|auth)[\w.-]*=)[^&\s"'#<>\[]+`), "$1" + Mark},
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), Mark},
}

// Text returns s without what looks like a secret.
func Text(s string) string {
	for _, p := range patterns {
		s = p.secret.ReplaceAllString(s, p.with)
	}
	return s
}

// Secrets returns s without these secrets, and without what looks like one. Those
// of fewer than four bytes are not looked for: they stand in every text.
func Secrets(s string, secrets ...string) string {
	secrets = slices.Clone(secrets)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may hold another
	for _, secret := range secrets {
		if len(secret) > 3 {
			s = strings.ReplaceAll(s, secret, Mark)
		}
	}
	return Text(s)
}
