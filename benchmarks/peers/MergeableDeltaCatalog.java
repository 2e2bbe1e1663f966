import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.delta.catalog.DeltaCatalog;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;

/**
 * Delta's catalog, whose tables say that they support row-level operations.
 *
 * <p>AUTO CDC of Spark 4.2.0 refuses tables without this interface (AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE). Delta 4.4
 * plans MERGE by its own rules, without the interface. SPARK-57623 asks to drop the check. Nothing else changes.
 */
public class MergeableDeltaCatalog extends DeltaCatalog {
    @Override
    public Table loadTable(Identifier identifier) {
        Table table = super.loadTable(identifier);
        return table instanceof DeltaTableV2 delta ? new Mergeable(delta) : table;
    }

    private static final class Mergeable extends DeltaTableV2 implements SupportsRowLevelOperations {
        Mergeable(DeltaTableV2 table) {
            super(
                    table.spark(),
                    table.path(),
                    table.catalogTable(),
                    table.tableIdentifier(),
                    table.timeTravelOpt(),
                    table.options());
        }

        @Override
        public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
            throw new UnsupportedOperationException("Delta plans MERGE by its own rules");
        }
    }
}
