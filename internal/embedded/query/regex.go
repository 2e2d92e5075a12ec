package query

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Regex is a regular expression of a filter. MongoDB runs PCRE, this package
// Go's regexp: expressions that Go cannot run are refused.
type Regex struct {
	Pattern, Options string
	re               *regexp.Regexp
}

func compileRegex(pattern, options string) Regex {
	flags := syntax.Perl
	for _, o := range options {
		switch o {
		case 'i':
			flags |= syntax.FoldCase
		case 'm':
			flags &^= syntax.OneLine // `^` and `$` also at line ends
		case 's':
			flags |= syntax.DotNL
		case 'x':
			refuse("option x of $regex")
		default:
			fail(51108, "invalid flag in regex options: %c", o)
		}
	}
	need(strings.IndexByte(pattern, 0) < 0, "Regular expression cannot contain an embedded null byte")
	tree, err := syntax.Parse(pattern, flags)
	if err == nil {
		if !dollars(tree, true) {
			refuse("a regular expression with `$` before its end")
		}
		var re *regexp.Regexp
		if re, err = regexp.Compile(tree.String()); err == nil {
			return Regex{pattern, options, re}
		}
	}
	var e *syntax.Error
	if errors.As(err, &e) {
		switch e.Code {
		case syntax.ErrMissingBracket, syntax.ErrMissingParen, syntax.ErrUnexpectedParen,
			syntax.ErrTrailingBackslash, syntax.ErrInvalidCharRange, syntax.ErrMissingRepeatArgument:
			fail(51091, "Regular expression is invalid: %s", e.Code) // in PCRE too
		}
	}
	refuse("the regular expression " + pattern)
	return Regex{}
}

// dollars gives `$` its PCRE meaning, the end of the text or before a newline
// there, where it stands last; false if one stands elsewhere.
func dollars(re *syntax.Regexp, last bool) bool {
	if re.Op == syntax.OpEndText && re.Flags&syntax.WasDollar != 0 {
		if !last {
			return false
		}
		end, err := syntax.Parse(`(?:\n?\z)`, syntax.Perl)
		*re = *end
		return err == nil
	}
	for i, sub := range re.Sub {
		tail := last && (re.Op == syntax.OpAlternate || re.Op == syntax.OpCapture ||
			re.Op == syntax.OpConcat && i == len(re.Sub)-1)
		if !dollars(sub, tail) {
			return false
		}
	}
	return true
}

func (r Regex) match(v bson.RawValue) bool {
	switch v.Type {
	case bson.TypeString, bson.TypeSymbol:
		return len(v.Value) > 4 && r.re.Match(v.Value[4:len(v.Value)-1])
	case bson.TypeRegex:
		p, o := v.Regex()
		return p == r.Pattern && o == r.Options
	}
	return false
}
