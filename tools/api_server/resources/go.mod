// What go.sum here holds the two modules against whose files tools/api_server/build.sh copies.
module resources

go 1.24.0
