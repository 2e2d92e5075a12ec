package embedded

func runAsChild() bool { return false }
