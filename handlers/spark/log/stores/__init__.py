"""Stores for a log's files: this machine (`local`), Hadoop's stores (`hadoop`), object stores without Java
(`object_stores`)."""
