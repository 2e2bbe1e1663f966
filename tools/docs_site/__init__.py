"""The documentation's site: its pages laid out, built by Zensical, and looked through.

python -m docs_site [FOLDER]        (with tools on PYTHONPATH; `make docs` does)
"""
