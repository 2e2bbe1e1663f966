"""Where a log's files can be: this machine (`local`), Hadoop's stores (`hadoop`), object stores without
Java (`object_stores`)."""
