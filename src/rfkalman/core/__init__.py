"""What every room stands on: errors, checks, linear algebra, codecs, files."""
