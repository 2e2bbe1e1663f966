"""`mode: function`: revenue per minute, kept by MERGE, each payment counted once whatever comes again."""

from pyspark.sql import DataFrame, SparkSession

from binlane import Batch

PAYMENTS = {"state", "amount"}


def revenue(frame: DataFrame, batch: Batch) -> None:
    """Add the payments of a batch that were settled. A row of `revenue` is one minute of one partition.

    A batch may come again after a failure or a crash, perhaps cut differently. So each commit also holds how
    far its partition was counted (`last`), and what is not beyond that is passed over.
    """
    if not PAYMENTS.issubset(frame.columns):
        return  # a statement, which comes alone
    spark = frame.sparkSession
    table = revenue_table(spark)
    frame.createOrReplaceTempView("changes")
    spark.sql(
        f"""
        WITH counted AS (SELECT topic, partition, max(last) AS last FROM {table} GROUP BY ALL),
        settled AS (
            SELECT *, named_struct('offset', _offset, 'index', _index) AS place FROM changes
            WHERE _op <> 'delete' AND state = 'settled' AND coalesce(_before.state, '') <> 'settled'
        ),
        added AS (
            SELECT date_trunc('MINUTE', _source_time) AS minute, _topic AS topic, _partition AS partition,
                count(*) AS payments, sum(amount) AS revenue, max(place) AS last
            FROM settled LEFT JOIN counted ON topic = _topic AND partition = _partition
            WHERE last IS NULL OR place > last
            GROUP BY ALL
        )
        MERGE INTO {table} AS t USING added AS a
        ON t.minute = a.minute AND t.topic = a.topic AND t.partition = a.partition
        WHEN MATCHED THEN UPDATE SET
            payments = t.payments + a.payments, revenue = t.revenue + a.revenue, last = a.last
        WHEN NOT MATCHED THEN INSERT *
        """
    )


def revenue_table(spark: SparkSession) -> str:
    """Its name in statements; it is made if there is none."""
    table = f"delta.`{spark.conf.get('spark.sql.warehouse.dir')}/revenue`"
    spark.sql(
        f"""
        CREATE TABLE IF NOT EXISTS {table} (
            minute TIMESTAMP, topic STRING, partition INT, payments BIGINT, revenue DECIMAL(18, 2),
            last STRUCT<offset: BIGINT, index: INT>
        ) USING delta
        """
    )
    return table
