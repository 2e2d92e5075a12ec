package house

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// report fails the test with each breach on a line of its own.
func report(t *testing.T, breaches []string) {
	t.Helper()
	for _, b := range breaches {
		t.Error(b)
	}
}

func TestPackagesImportOnlyWhatTheirPlaceAllows(t *testing.T) { report(t, directions(load(t))) }
func TestNothingImportsTheBinaryOrTheScenarios(t *testing.T)  { report(t, importedByNobody(load(t))) }
func TestLibrariesUseFewThirdParties(t *testing.T)            { report(t, foreign(load(t))) }
func TestServicesAndTheBinaryCarryNoTestKit(t *testing.T)     { report(t, reaching(load(t))) }
func TestEveryPackageSaysWhatItIsFor(t *testing.T)            { report(t, undocumented(load(t))) }

// ours are our packages by their path in the module, sorted.
func (tr tree) ours() []string {
	var names []string
	for p := range tr.packages {
		if rel, ok := own(p); ok {
			names = append(names, rel)
		}
	}
	slices.Sort(names)
	return names
}

// allowance finds the line of mayImport for a package: its own, else the subtree's.
func allowance(rel string) (allowed []string, found bool) {
	if allowed, found = mayImport[rel]; found {
		return allowed, true
	}
	for place, allowed := range mayImport {
		if strings.HasSuffix(place, "/...") && within(rel, []string{place}) {
			return allowed, true
		}
	}
	return nil, false
}

func directions(tr tree) (breaches []string) {
	for _, rel := range tr.ours() {
		allowed, found := allowance(rel)
		if !found {
			breaches = append(breaches, rel+" has no place: say in mayImport (internal/house/rules_test.go) what it may import")
			continue
		}
		if slices.Contains(allowed, "core") {
			allowed = slices.Concat(allowed, core)
		}
		for _, imp := range tr.packages[module+"/"+rel].Imports {
			if to, ok := own(imp); ok && !within(to, allowed) {
				breaches = append(breaches, fmt.Sprintf("%s imports %s: %s may import only [%s] of ours",
					tr.importer(rel, imp), to, rel, strings.Join(allowed, " ")))
			}
		}
	}
	for _, place := range slices.Sorted(maps.Keys(mayImport)) {
		if !slices.ContainsFunc(tr.ours(), func(rel string) bool { return within(rel, []string{place}) }) {
			breaches = append(breaches, place+" is in mayImport but not in the tree: take the line out")
		}
	}
	return breaches
}

func importedByNobody(tr tree) (breaches []string) {
	tr.eachImport(func(rel, imp string) {
		if to, ok := own(imp); ok && within(to, neverImported) && !within(rel, neverImported) {
			breaches = append(breaches, fmt.Sprintf("%s imports %s: nothing imports that", tr.importer(rel, imp), to))
		}
	})
	return breaches
}

// eachImport calls f for every import of our packages and their tests.
func (tr tree) eachImport(f func(rel, imp string)) {
	for _, rel := range tr.ours() {
		p := tr.packages[module+"/"+rel]
		all := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		slices.Sort(all)
		for _, imp := range slices.Compact(all) {
			f(rel, imp)
		}
	}
}

func foreign(tr tree) (breaches []string) {
	for _, from := range libraries {
		for _, chain := range tr.reach(module + "/" + from) {
			last := chain[len(chain)-1]
			if len(chain) < 2 {
				continue
			}
			_, importerIsOurs := own(chain[len(chain)-2])
			_, isOurs := own(last)
			allowed := slices.ContainsFunc(thirdParties, func(m string) bool { return within(last, []string{m + "/..."}) })
			if importerIsOurs && !isOurs && !tr.packages[last].Standard && !allowed {
				breaches = append(breaches, fmt.Sprintf("%s: a library may use only %s", show(chain), strings.Join(thirdParties, ", ")))
			}
		}
	}
	return breaches
}

func reaching(tr tree) (breaches []string) {
	for _, rule := range unreachable {
		for _, from := range rule.from {
			for _, chain := range tr.reach(module + "/" + from) {
				if within(chain[len(chain)-1], rule.to) {
					breaches = append(breaches, fmt.Sprintf("%s: %s", show(chain), rule.why))
				}
			}
		}
	}
	return breaches
}

// reach gives, for each package that from reaches, one shortest chain of imports to it.
func (tr tree) reach(from string) [][]string {
	seen := map[string]bool{from: true}
	chains := [][]string{{from}}
	for i := 0; i < len(chains); i++ {
		chain := chains[i]
		for _, imp := range tr.packages[chain[len(chain)-1]].Imports {
			if !seen[imp] {
				seen[imp] = true
				chains = append(chains, append(slices.Clone(chain), imp))
			}
		}
	}
	return chains
}

func show(chain []string) string {
	short := make([]string, len(chain))
	for i, p := range chain {
		short[i] = strings.TrimPrefix(p, module+"/")
	}
	return strings.Join(short, " imports ")
}

// importer names a file of the package that has the import.
func (tr tree) importer(rel, imp string) string {
	for _, f := range tr.files {
		if f.room() != rel {
			continue
		}
		for _, spec := range f.syntax.Imports {
			if strings.Trim(spec.Path.Value, `"`) == imp {
				return f.path
			}
		}
	}
	return rel
}

func undocumented(tr tree) (breaches []string) {
	for _, rel := range tr.ours() {
		if p := tr.packages[module+"/"+rel]; strings.TrimSpace(p.Doc) == "" {
			breaches = append(breaches, rel+" has no package comment: say in doc.go what lives there and what does not")
		}
	}
	return breaches
}
