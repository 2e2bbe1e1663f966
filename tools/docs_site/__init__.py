"""The documentation site: arrange its pages, build it with Zensical, and check it.

python -m docs_site [FOLDER]        (with tools on PYTHONPATH; `make docs` does)
"""
