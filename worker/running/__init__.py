"""The worker as a whole: built from its components, started, watched, reloaded, drained, ended. Also its
`handlers`."""
