-- Which of a release's macros the file has.
SELECT DISTINCT function_name FROM duckdb_functions()
WHERE database_name = current_database() AND function_name IN ('ate', 'ate_by_segment')
