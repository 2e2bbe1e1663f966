# binlane's image with Hadoop's connector for S3 (s3a://), from Maven Central:
#   docker build --file deploy/s3.Dockerfile --tag binlane:0.1.0-s3 deploy
# PACKAGES is the list of spark.packages in the configuration, in the same order, separated by spaces. For other stores,
# name their connectors. Amazon's client alone has 650 MB.
ARG IMAGE=binlane:0.1.0
FROM ${IMAGE}
# The connector of pyspark's Hadoop: 3.5.0 for Spark 4.2.
ARG PACKAGES=org.apache.hadoop:hadoop-aws:3.5.0
USER 0:0
# The cache is read-only for the worker, so the jars are resolved here.
RUN python -c "import sys; from handlers.spark.runtime.jars import resolve; resolve(sys.argv[1:], kind='spark')" ${PACKAGES} \
    && chmod -R a+rX /opt/binlane/cache
USER 10001:10001
